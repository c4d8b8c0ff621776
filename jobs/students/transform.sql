-- A student without a class stays, with class NULL.
SELECT students.name, students.age, students.score, classes.class
FROM students
LEFT JOIN classes ON students.name = classes.name
