DELETE FROM `lake`.`landing`.`flights_tmp` WHERE `batchNumber` < :below
  AND `error` IS NULL
