// A foreign program on the verbs library: calls that need no device. Another test checks that every
// header is installed.
#include <rkv/rdma/connect.h>
#include <rkv/rdma/error.h>
#include <rkv/rdma/srq.h>

#include <cstdio>

int main() {
  using namespace rkv::rdma;
  const auto where = parse_host_port("[::1]:7471");
  const auto devices = list_devices();
  const RegisteredSpan nothing;
  if (!where || nothing.size() != 0 || ibv_wc_status_str(IBV_WC_SUCCESS) == nullptr) return 1;
  std::printf("%s, %s\n", where->to_string().c_str(),
              devices ? "devices listed" : rkv::to_string(devices.error()).c_str());
}
