DELETE FROM `lake`.`landing`.`flights_tmp` WHERE `batchNumber` < :below
  AND (`error` IS NULL OR (`batchNumber`, `i`) IN (
    SELECT `batchNumber`, `i` FROM `lake`.`landing`.`flights_tmp` WHERE `revision` IS NOT NULL AND `error` IS NULL
  ))
