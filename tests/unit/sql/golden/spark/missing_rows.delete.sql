SELECT s.*
FROM (SELECT 1) AS s
LEFT ANTI JOIN `lake`.`air`.`flights`.`branch_attempt--p--main--1f` AS t
ON t.`_topic` = s.`__kafka`.`topic`
  AND t.`__partition` = s.`__kafka`.`partition`
  AND t.`_offset` = s.`__kafka`.`offset`
  AND s.`__op` <> 'delete'
  AND NOT s.`__key_deleted`
