SELECT * EXCEPT (`__deleted`), `__deleted` IS NOT NULL AND (`__order` IS NULL OR `__deleted`.`__order` >= `__order`) AS `__key_deleted`
FROM (
  SELECT *,
    max(CASE WHEN `__op` = 'delete' THEN struct(`__order`, `__batch`, `__i`) END) OVER (
      PARTITION BY `carrier`, `flight`
    ) AS `__deleted`
  FROM (SELECT 1)
)
WHERE `__deleted` IS NULL
   OR struct(`__order`, `__batch`, `__i`) >= `__deleted`
