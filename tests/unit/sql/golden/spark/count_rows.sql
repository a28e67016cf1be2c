SELECT count(*) AS `rows` FROM `lake`.`air`.`flights`.`branch_attempt--p--main--1f`
