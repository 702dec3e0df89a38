# The store without network and disk. Of rdma/ only the header rdma/transport.h is used (Region);
# the commit log is the one part of persistence that the store knows.
set(rkv_server_core_sources
  cells.cc expiries.cc index.cc index_check.cc index_split.cc memory.cc memory_sizes.cc pins.cc records.cc records_check.cc records_space.cc segments.cc stash.cc
  store.cc store_cells.cc store_check.cc store_counters.cc store_disk.cc store_expiry.cc store_growth.cc store_large.cc)

rkv_library(rkv_server_core
  SOURCES ${rkv_server_core_sources}
  PUBLIC rkv_common rkv_commit_log Threads::Threads)

# The same sources with a hook between the steps of every publication (store_steps.h), for tests
# that run a reader between any two of them. Never linked together with rkv_server_core.
if(RKV_BUILD_TESTS)
  rkv_library(rkv_server_core_stepped
    SOURCES ${rkv_server_core_sources}
    PUBLIC rkv_common rkv_commit_log Threads::Threads)
  target_compile_definitions(rkv_server_core_stepped PUBLIC RKV_STORE_STEPS)
endif()
