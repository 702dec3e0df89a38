// Datagrams: a question to a socket whose endpoint is known, and an answer to the sender.
//
//   ud
#include <rkv/rdma/datagram_socket.h>

#include <chrono>
#include <cstdio>

using namespace rkv::rdma;
using rkv::Deadline;
using rkv::Status;
using namespace std::chrono_literals;

void show(const char* who, const IncomingDatagram& got) {
  const std::string_view text = rkv::as_text(got.payload);
  std::printf("%s got \"%.*s\"\n", who, static_cast<int>(text.size()), text.data());
}

Status run() {
  RKV_ASSIGN_OR_RETURN(const Device device, Device::open_first_active());
  RKV_ASSIGN_OR_RETURN(DatagramSocket server, DatagramSocket::open(device, {}));
  RKV_ASSIGN_OR_RETURN(DatagramSocket client, DatagramSocket::open(device, {}));
  std::printf("a datagram is at most %zu bytes long\n", client.max_bytes());
  RKV_RETURN_IF_ERROR(client.send(server.endpoint(), rkv::as_bytes("question"), Deadline::in(5s)));
  RKV_ASSIGN_OR_RETURN(const IncomingDatagram question, server.receive(Deadline::in(5s)));
  show("server", question);
  RKV_RETURN_IF_ERROR(server.reply(question, rkv::as_bytes("answer"), Deadline::in(5s)));
  RKV_ASSIGN_OR_RETURN(const IncomingDatagram answer, client.receive(Deadline::in(5s)));
  show("client", answer);
  return {};
}

int main() {
  const Status done = run();
  if (!done) std::fprintf(stderr, "%s\n", to_string(done.error()).c_str());
  return done ? 0 : 1;
}
