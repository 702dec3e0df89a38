// Somebody else's program over verbs: every header of the verbs library, and calls that need no
// device.
#include <rkv/rdma/connect.h>
#include <rkv/rdma/error.h>
#include <rkv/rdma/srq.h>

#include <cstdio>

int main() {
  const auto where = rkv::rdma::parse_host_port("[::1]:7471");
  const auto devices = rkv::rdma::list_devices();
  const rkv::rdma::RegisteredSpan nothing;
  if (!where || nothing.size() != 0 || ibv_wc_status_str(IBV_WC_SUCCESS) == nullptr) return 1;
  std::printf("%s, %s\n", where->to_string().c_str(),
              devices ? "devices listed" : rkv::to_string(devices.error()).c_str());
}
