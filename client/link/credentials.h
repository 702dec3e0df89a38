// Credentials: the secrets by which a client proves to be a user.
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
  // Makes credentials from ClientOptions::user and secret; nullopt if both are empty.
  // kInvalidArgument: one of them is wrong or missing.
  static Result<std::optional<Credentials>> of(const ClientOptions& options);
};

// Returns the options without the secret, for keeping.
ClientOptions without_secret(ClientOptions options);

}  // namespace rkv::client
