// An unknown user and a wrong secret cost the server the same work, step by step. Each digest makes
// OpenSSL allocate, so the sequence of its allocations is compared: a clock would have to be
// precise.
//
// A program of its own: the functions must be replaced before OpenSSL has allocated anything.
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "server/clients/admission/authentication.h"

namespace rkv::server {
namespace {

std::vector<std::size_t>* allocations = nullptr;  // nullptr: none is noted

void* note_malloc(std::size_t bytes, const char* /*file*/, int /*line*/) {
  if (allocations != nullptr) allocations->push_back(bytes);
  return std::malloc(bytes);
}
void* plain_realloc(void* old, std::size_t bytes, const char* /*file*/, int /*line*/) {
  return std::realloc(old, bytes);
}
void plain_free(void* memory, const char* /*file*/, int /*line*/) {
  std::free(memory);
}

constexpr Nanos kNow = 1000 * kNanosPerSecond;
constexpr Route kHere{.called = "192.0.2.1:7471", .origin = "192.0.2.9"};

ClientKeys keys_of(char digit) {
  return ClientKeys::of(*Secret::parse(std::string(64, digit)));
}

struct Work {
  std::string outcome;
  std::vector<std::size_t> allocations;
};

// Returns the work of checking a proof for `name` with these keys.
Work work_of(Authentication& authentication, const std::string& name, const ClientKeys& keys) {
  static std::uint64_t nonce = 0;
  ConnectRequest request{.client_nonce = ++nonce, .user = number_of_user(name)};
  const auto asked = authentication.check(request, kHere, kNow);
  const auto* const challenged = std::get_if<Authentication::Challenged>(&asked);
  EXPECT_NE(challenged, nullptr);
  if (challenged == nullptr) return {};
  request.stamp = challenged->challenge.stamp;
  request.proof = make_proof(keys, {.stamp = request.stamp,
                                    .cookie = challenged->challenge.cookie,
                                    .user = request.user,
                                    .nonce = request.client_nonce,
                                    .server = kHere.called});
  Work work;
  allocations = &work.allocations;
  const auto answer = authentication.check(request, kHere, kNow);
  allocations = nullptr;
  const auto* const refused = std::get_if<Authentication::Refused>(&answer);
  work.outcome = refused == nullptr ? "" : refused->text;
  return work;
}

TEST(EqualWork, OfAnUnknownUserAndAWrongSecret) {
  ASSERT_EQ(CRYPTO_set_mem_functions(note_malloc, plain_realloc, plain_free), 1)
      << "OpenSSL has allocated before";
  const User anna{.name = "anna", .role = Role::kWrite, .keys = keys_of('1').stored};
  std::string problem;
  Authentication authentication(*Users::parse(Users::line_of(anna), "users", &problem));
  (void)work_of(authentication, "anna", keys_of('1'));  // what is done once
  const Work right = work_of(authentication, "anna", keys_of('1'));
  const Work wrong = work_of(authentication, "anna", keys_of('2'));
  const Work unknown = work_of(authentication, "carol", keys_of('2'));
  EXPECT_EQ(right.outcome, "");
  EXPECT_EQ(wrong.outcome, "the user is unknown or the secret is wrong");
  EXPECT_EQ(unknown.outcome, wrong.outcome);
  EXPECT_FALSE(wrong.allocations.empty()) << "the digests leave no trace: the test sees nothing";
  EXPECT_EQ(unknown.allocations, wrong.allocations);
}

}  // namespace
}  // namespace rkv::server
