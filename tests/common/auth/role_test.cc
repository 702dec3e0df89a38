#include "common/auth/role.h"

#include <gtest/gtest.h>

namespace rkv {
namespace {

TEST(Roles, HaveNamesAndAnOrder) {
  for (const Role role : kRoles)
    EXPECT_EQ(parse_role(to_string(role)), role);
  EXPECT_LT(Role::kRead, Role::kWrite);
  EXPECT_LT(Role::kWrite, Role::kAdmin);
}

TEST(Roles, AreNotGuessed) {
  for (const char* bad : {"", "READ", "reader", "unknown", "write "})
    EXPECT_FALSE(parse_role(bad)) << bad;
}

}  // namespace
}  // namespace rkv
