CALL `lake`.system.rewrite_manifests(table => '`air`.`flights`', use_caching => false)
