# Run by CPack on each component's files before they are packed: what Debian asks for and `cmake
# --install` does not do.
file(GLOB_RECURSE files ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*)
foreach(file IN LISTS files)
  if(file MATCHES "/man/man[0-9]/[^/]*[.][0-9]$|/doc/[^/]*/changelog$")
    execute_process(COMMAND gzip -9n ${file} COMMAND_ERROR_IS_FATAL ANY)
  elseif(file MATCHES "[.]a$")
    execute_process(COMMAND strip --strip-debug --enable-deterministic-archives ${file} COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
