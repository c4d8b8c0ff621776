from tidegate.airflow import build_maintenance_dag

dag = build_maintenance_dag()
