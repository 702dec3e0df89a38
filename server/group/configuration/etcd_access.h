// EtcdAccess: the credentials for calls to etcd's servers: certificates, and a user with a
// password.
//
//   std::string problem;
//   const auto access = EtcdAccess::load({.ca = "/etc/rkv/etcd-ca.pem"}, &problem);
//
// Thread safety: values; load() blocks on the disk.
#pragma once

#include <string>

#include "rkv/result.h"

namespace rkv::server {

struct EtcdAccess {
  // Paths; empty: none. Only this user may have access to the key's and the password's files
  // (read_private_file()).
  struct Files {
    std::string ca = {};
    std::string cert = {};  // with `key`, and `ca`
    std::string key = {};
    std::string user = {};  // a name, not a path; with `password`
    std::string password = {};
  };
  std::string ca = {};  // PEM; empty: without TLS
  std::string cert = {};
  std::string key = {};
  std::string user = {};  // empty: none
  std::string password = {};

  // On failure `*problem` is a sentence that names the file and says what to do.
  static Result<EtcdAccess> load(const Files& files, std::string* problem);
};

}  // namespace rkv::server
