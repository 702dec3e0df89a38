# Run by CPack on each component's files before they are packed: what Debian asks for and `cmake
# --install` does not do. It installs below a directory of its own, which installed files name where
# they should name /usr.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
file(GLOB_RECURSE files ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
foreach(file IN LISTS files)
  if(file MATCHES "/man/man[0-9]/[^/]*[.][0-9]$|[.]service$")
    file(READ ${file} text)
    foreach(component /server /tools "")
      string(REPLACE "${root}${component}${CPACK_PACKAGING_INSTALL_PREFIX}/" "${CPACK_PACKAGING_INSTALL_PREFIX}/"
        text "${text}")
    endforeach()
    file(WRITE ${file} "${text}")
  endif()
  if(file MATCHES "/man/man[0-9]/[^/]*[.][0-9]$|/doc/[^/]*/changelog$")
    execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
  elseif(file MATCHES "[.]a$")
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${file} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
