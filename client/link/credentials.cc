#include "client/link/credentials.h"

#include <span>
#include <utility>

namespace rkv::client {

Result<std::optional<Credentials>> Credentials::of(const ClientOptions& options) {
  if (options.user.empty() && options.secret.empty()) return std::optional<Credentials>();
  if (options.user.empty()) {
    return fail(Code::kInvalidArgument, "the option secret needs the option user");
  }
  if (!is_user_name(options.user)) {
    return fail(Code::kInvalidArgument,
                "the option user must have 1 to 64 letters, digits, '.', '_' and '-', and begin "
                "with a letter, digit or '_'");
  }
  const auto secret = Secret::parse(options.secret);
  if (!secret) {
    return fail(Code::kInvalidArgument,
                "the option user needs the option secret: the 64 hexadecimal digits that kvserver "
                "user add made");
  }
  Credentials credentials;
  credentials.user = number_of_user(options.user);
  credentials.keys = ClientKeys::of(*secret);
  return std::optional(credentials);
}

ClientOptions without_secret(ClientOptions options) {
  cleanse(std::as_writable_bytes(std::span(options.secret)));
  options.secret.clear();
  return options;
}

}  // namespace rkv::client
