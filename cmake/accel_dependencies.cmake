# What the library and its tools stand on. ZeroMQ, libibverbs, OpenSSL, spdlog and fmt are private: no public header includes them.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS SSL Crypto)
find_package(OpenSSL 3.0 REQUIRED)
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq>=4.3)
# CMake takes `-isystem FOLDER` for an include folder when pkg-config has just said it, and for an option when it comes
# from the cache: without this the second configuration would have everything built anew.
set(folders "${zmq_CFLAGS}")
list(FILTER folders EXCLUDE REGEX "^-(isystem$|[^Ii])")
list(TRANSFORM folders REPLACE "^-I" "")
set_target_properties(PkgConfig::zmq PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES "${folders}")
pkg_check_modules(ibverbs REQUIRED IMPORTED_TARGET libibverbs)

# accel_command_line(SOURCES...): files that parse arguments. CLI11 takes long to optimise, for nothing.
function(accel_command_line)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
endfunction()
