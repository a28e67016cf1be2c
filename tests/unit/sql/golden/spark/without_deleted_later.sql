SELECT s.*
FROM (SELECT 1) AS s
LEFT ANTI JOIN `lake`.`air`.`flights__tombstones` AS t
ON t.`carrier` = s.`carrier` AND t.`flight` = s.`flight`
 AND (s.`__order` IS NULL OR t.`__order` > s.`__order`)
