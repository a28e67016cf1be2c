SELECT `id`
FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f`
ORDER BY rand()
LIMIT 10
