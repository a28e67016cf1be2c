INSERT INTO `p.d.dest` (
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
  `ratio`,
  `__partition`,
  `_offset`

)
SELECT
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
  `batch`.`value`.`ratio`,
  `batch`.`value`.`__partition`,
  `batch`.`value`.`_offset`

FROM (
  SELECT `x`.*
  FROM `p.d._dest_tmp_p_1_2` AS `x`
  WHERE `x`.`batchNumber` BETWEEN @first AND @last AND `x`.`value` IS NOT NULL
  QUALIFY ROW_NUMBER() OVER (PARTITION BY `x`.`batchNumber`, `x`.`i` ORDER BY `x`.`i`) = 1
) AS `batch`

