SELECT DISTINCT explode(`kept`) AS `name`
FROM `lake`.`landing`.`flights_tmp` VERSION AS OF 42
WHERE `batchNumber` BETWEEN :first AND :last
  AND `error` IS NULL
