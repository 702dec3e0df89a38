// Credentials: what a client proves to be a user with.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/auth/proof.h"
#include "rkv/options.h"
#include "rkv/result.h"

namespace rkv::client {

struct Credentials {
  std::uint32_t user = 0;  // number_of_user()
  ClientKeys keys{};
  // Of ClientOptions::user and secret; nothing if they are empty. kInvalidArgument: one of them is
  // wrong or missing.
  static Result<std::optional<Credentials>> of(const ClientOptions& options);
};

// The options without the secret, to be kept.
ClientOptions without_secret(ClientOptions options);

}  // namespace rkv::client
