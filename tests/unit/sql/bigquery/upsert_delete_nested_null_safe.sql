MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`k`.`a`, `x`.`key`.`k`.`b`.`c`, `x`.`key`.`k`.`b`.`at`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  COALESCE(`t`.`k`.`a`, 0) = COALESCE(`batch`.`key`.`k`.`a`, 0) AND (`t`.`k`.`a` IS NULL) = (`batch`.`key`.`k`.`a` IS NULL) AND
  COALESCE(`t`.`k`.`b`.`c`, '') = COALESCE(`batch`.`key`.`k`.`b`.`c`, '') AND (`t`.`k`.`b`.`c` IS NULL) = (`batch`.`key`.`k`.`b`.`c` IS NULL) AND
  COALESCE(`t`.`k`.`b`.`at`, TIMESTAMP '1970-01-01 00:00:00+00') = COALESCE(`batch`.`key`.`k`.`b`.`at`, TIMESTAMP '1970-01-01 00:00:00+00') AND (`t`.`k`.`b`.`at` IS NULL) = (`batch`.`key`.`k`.`b`.`at` IS NULL)

WHEN MATCHED AND `batch`.`value` IS NULL THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
  `name` = `batch`.`value`.`name`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `k`,
  `name`

) VALUES (
  `batch`.`key`.`k`,
  `batch`.`value`.`name`

)

