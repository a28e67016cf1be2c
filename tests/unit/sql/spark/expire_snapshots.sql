CALL `lake`.system.expire_snapshots(
  table => '`lake`.`air`.`flights`',
  older_than => TIMESTAMP '1970-01-02 00:00:00',
  snapshot_ids => ARRAY(5L, 7L)
)
