create schema {schema}
