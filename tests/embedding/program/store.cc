// A program of somebody else: puts a value and gets it back. Usage: store HOST:PORT
#include <rkv/client.h>

#include <cstdio>

int main(int, char** argv) {
  auto client = rkv::Client::connect({.server = argv[1], .transport = rkv::Transport::kShm});
  if (!client) {
    std::fprintf(stderr, "%s\n", rkv::to_string(client.error()).c_str());
    return 1;
  }
  const auto put = client->put("embedded", argv[0]);
  const auto got = client->get("embedded");
  if (!put || !got || got->value != argv[0] || got->version != *put) return 1;
  std::printf("one-sided GETs: %u\n", static_cast<unsigned>(client->stats().one_sided_gets));
}
