SELECT
  `batchNumber` AS `batch`,
  `kafka`.`topic` AS `topic`,
  `kafka`.`partition` AS `partition`,
  min(`kafka`.`offset`) AS `first`,
  max(`kafka`.`offset`) AS `last`,
  count(*) AS `rows`
FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
WHERE `revision` = 7 AND `error` IS NULL AND `batchNumber` BETWEEN :first AND :last
GROUP BY 1, 2, 3
