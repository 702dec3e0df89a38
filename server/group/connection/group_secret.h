// The secret that the replicas of a group share: a process that knows it may be a replica.
//
// Thread safety: a value.
#pragma once

#include <string>
#include <string_view>

#include "common/auth/proof.h"
#include "rkv/result.h"

namespace rkv::server {

class GroupSecret {
 public:
  // Reads a file that only its owner may read, and that holds one line of 64 hexadecimal digits.
  // Blocks on the disk. On failure `*problem` is a sentence that names the file and says what to
  // do.
  static Result<GroupSecret> load(const std::string& path, std::string* problem);
  // A key that everybody knows: it proves nothing, and the encryption with it hides nothing.
  static GroupSecret well_known();

  Bytes bytes() const { return secret_.bytes; }
  // Sent in clear, so that two replicas find that only one of them has a secret.
  std::string_view identity() const { return is_well_known_ ? "rkv-no-secret" : "rkv-secret"; }

 private:
  GroupSecret(const Secret& secret, bool is_well_known)
      : secret_(secret), is_well_known_(is_well_known) {}

  Secret secret_;
  bool is_well_known_;
};

}  // namespace rkv::server
