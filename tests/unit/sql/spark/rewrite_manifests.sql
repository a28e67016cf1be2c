CALL `lake`.system.rewrite_manifests(table => '`lake`.`air`.`flights`', use_caching => false)
