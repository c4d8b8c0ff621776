from tidegate.airflow import build_dag

dag = build_dag("ad_clicks")
