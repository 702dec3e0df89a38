# The commit log is a library of its own: the store appends to it and needs no disk for that.
rkv_library(rkv_commit_log
  SOURCES persistence/commit_log.cc
  PUBLIC rkv_common)
