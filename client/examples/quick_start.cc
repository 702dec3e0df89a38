// Puts and gets a value, and handles the errors.
//
//   quick_start [HOST:PORT]
#include <rkv/client.h>

#include <cstdio>

namespace {

int complain(const char* doing, const rkv::Error& error) {
  std::fprintf(stderr, "%s: %s\n", doing, rkv::to_string(error).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  auto client = rkv::Client::connect({.server = argc > 1 ? argv[1] : "127.0.0.1:7471"});
  if (!client) return complain("connect", client.error());

  const auto version = client->put("greeting", "hello");
  if (!version) return complain("put", version.error());

  const auto got = client->get("greeting");  // READs of the server's memory, without its processor
  if (!got) return complain("get", got.error());
  std::printf("greeting: %s\n", got->value.c_str());

  // Succeeds only if no other client has changed the value since: else kConflict.
  const auto changed = client->put_if_version("greeting", "good evening", got->version);
  if (!changed) return complain("put_if_version", changed.error());
  const auto late = client->put_if_version("greeting", "good night", got->version);
  std::printf("with the version of before: %s\n",
              late ? "stored" : rkv::to_string(late.error().code));
}
