SELECT c.* EXCEPT (`__order`), greatest(c.`__order`, s.`__order`) AS `__order`
FROM (SELECT 1) AS c
LEFT JOIN (
  SELECT `key`.`carrier` AS `__key_0`, `key`.`flight` AS `__key_1`, max(`value`.`version`) AS `__order`
  FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
  WHERE coalesce(`revision`, 0) <= :last AND `error` IS NULL

  GROUP BY `key`.`carrier`, `key`.`flight`
) AS s
ON c.`carrier` <=> s.`__key_0` AND c.`flight` <=> s.`__key_1`
