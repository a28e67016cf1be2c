SELECT r.*
FROM (SELECT 1) AS r
LEFT ANTI JOIN `x` AS x
ON r.`__kafka`.`topic` = x.`topic` AND r.`__kafka`.`partition` = x.`partition` AND r.`__kafka`.`offset` = x.`offset`
  AND r.`__batch` = x.`batch`
