SELECT `id`, `it's ``q```
FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f`
