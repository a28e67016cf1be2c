MERGE `p.d.dest` AS `t`
USING (
  SELECT `x`.`key`, `x`.`value`, `x`.`partitionTime`
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last
  QUALIFY ROW_NUMBER() OVER (
    PARTITION BY `x`.`key`.`id`
    ORDER BY `x`.`batchNumber` DESC, `x`.`i` DESC
  ) = 1

) AS `batch`
ON
  `t`.`id` = `batch`.`key`.`id`

WHEN MATCHED AND `batch`.`value` IS NULL THEN DELETE
WHEN MATCHED AND `batch`.`value` IS NOT NULL THEN UPDATE SET
  `doc` = PARSE_JSON(`batch`.`value`.`doc`, wide_number_mode => 'round'),
  `place` = ST_GEOGFROMTEXT(`batch`.`value`.`place`),
  `clock` = CAST(`batch`.`value`.`clock` AS TIME),
  `millis` = TIME(TIMESTAMP_MILLIS(`batch`.`value`.`millis`)),
  `micros` = TIME(TIMESTAMP_MICROS(`batch`.`value`.`micros`)),
  `days` = DATE_FROM_UNIX_DATE(`batch`.`value`.`days`),
  `big` = CAST(`batch`.`value`.`big` AS BIGNUMERIC),
  `tags` = `batch`.`value`.`tags`,
  `counts` = `batch`.`value`.`counts`,
  `wall` = `batch`.`value`.`wall`,
  `raw` = `batch`.`value`.`raw`,
  `ratio` = `batch`.`value`.`ratio`
WHEN NOT MATCHED AND `batch`.`value` IS NOT NULL THEN INSERT (
  `id`,
  `doc`,
  `place`,
  `clock`,
  `millis`,
  `micros`,
  `days`,
  `big`,
  `tags`,
  `counts`,
  `wall`,
  `raw`,
  `ratio`

) VALUES (
  `batch`.`key`.`id`,
  PARSE_JSON(`batch`.`value`.`doc`, wide_number_mode => 'round'),
  ST_GEOGFROMTEXT(`batch`.`value`.`place`),
  CAST(`batch`.`value`.`clock` AS TIME),
  TIME(TIMESTAMP_MILLIS(`batch`.`value`.`millis`)),
  TIME(TIMESTAMP_MICROS(`batch`.`value`.`micros`)),
  DATE_FROM_UNIX_DATE(`batch`.`value`.`days`),
  CAST(`batch`.`value`.`big` AS BIGNUMERIC),
  `batch`.`value`.`tags`,
  `batch`.`value`.`counts`,
  `batch`.`value`.`wall`,
  `batch`.`value`.`raw`,
  `batch`.`value`.`ratio`

)

