SELECT t.`__row`, e.`tags`, e.`__kept`.`c0` AS `__kept_tags`
FROM `f` AS t
JOIN `e` AS e
ON t.`carrier` <=> e.`carrier` AND t.`flight` <=> e.`flight`
WHERE e.`__expected`
