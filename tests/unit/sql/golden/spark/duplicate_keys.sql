SELECT count(*) AS `duplicates`
FROM (
  SELECT 1
  FROM `lake`.`air`.`flights` AS t
  LEFT SEMI JOIN (
    SELECT DISTINCT `key`.`carrier` AS `carrier`, `key`.`flight` AS `flight`
    FROM `lake`.`landing`.`flights_tmp`
    WHERE `batchNumber` BETWEEN :first AND :last AND `error` IS NULL
  ) AS s
  ON t.`carrier` <=> s.`carrier` AND t.`flight` <=> s.`flight`
  GROUP BY t.`carrier`, t.`flight`
  HAVING count(*) > 1
)
