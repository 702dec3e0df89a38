// The files with which this process calls etcd, as the options name them.
//
// Thread safety: pure.
#pragma once

#include "server/group/configuration/etcd_access.h"
#include "server/program/options.h"

namespace rkv::server {

inline EtcdAccess::Files etcd_files(const Options& options) {
  return {.ca = options.etcd_ca,
          .cert = options.etcd_cert,
          .key = options.etcd_key,
          .user = options.etcd_user,
          .password = options.etcd_password_file};
}

}  // namespace rkv::server
