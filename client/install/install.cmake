# Where it all goes. Components: library (what a program needs to run), dev (what it takes to build
# one).
include(CMakePackageConfigHelpers)

install(TARGETS rkv_shared EXPORT rkvSharedTargets
  LIBRARY COMPONENT library NAMELINK_COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS rkv_static EXPORT rkvStaticTargets
  ARCHIVE COMPONENT dev
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
foreach(layer common rdma client)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${layer}/include/rkv DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    COMPONENT dev FILES_MATCHING PATTERN "*.h"
    REGEX "/rdma/(efa|mlx5)[.]h$" EXCLUDE)  # installed with their libraries: rdma/extras/vendor
endforeach()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rkv)
foreach(kind Shared Static)
  install(EXPORT rkv${kind}Targets NAMESPACE rkv:: DESTINATION ${package_dir} COMPONENT dev)
endforeach()
configure_package_config_file(rkvConfig.cmake.in rkvConfig.cmake INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a new minor version may break programs.
write_basic_package_version_file(rkvConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rkvConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/rkvConfigVersion.cmake
  DESTINATION ${package_dir} COMPONENT dev)

# The prefix is found from where the file lies, so that an installed tree may be moved.
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_to_prefix /${pkgconfig_dir} /)
foreach(file rkv.pc rkv-rdma.pc)
  configure_file(${file}.in ${file} @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${file} DESTINATION ${pkgconfig_dir} COMPONENT dev)
endforeach()
