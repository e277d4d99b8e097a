// SPDX-License-Identifier: Apache-2.0
// Stands in front of the functions of OpenSSL, ZeroMQ and libibverbs that the library calls.
#include "faults/failing_calls.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <type_traits>

#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#ifdef ACCEL_FAULTS_ZMQ
#include <zmq.h>
#endif
#ifdef ACCEL_FAULTS_VERBS
#include <infiniband/verbs.h>
#undef ibv_reg_mr
#undef ibv_query_port
#endif

namespace accel::faults {
namespace {

constexpr std::array openssl = std::to_array<failure>({
    {"BIO_new", ENOMEM},
    {"BIO_new_mem_buf", ENOMEM},
    {"PEM_read_bio", ENOMEM},
    {"PEM_read_bio_PrivateKey", ENOMEM},
    {"EVP_PKEY_get_raw_public_key", ENOMEM},
    {"RAND_priv_bytes", ENOMEM},
    {"SSL_CTX_new", ENOMEM},
    {"SSL_CTX_set_ciphersuites", ENOMEM},
    {"SSL_CTX_set_session_id_context", ENOMEM},
    {"SSL_CTX_ctrl", ENOMEM},
    {"SSL_CTX_use_certificate", ENOMEM},
    {"SSL_CTX_use_PrivateKey", ENOMEM},
    {"SSL_new", ENOMEM},
    {"SSL_set_alpn_protos", ENOMEM},
    {"SSL_SESSION_new", ENOMEM},
    {"SSL_SESSION_set1_master_key", ENOMEM},
    {"SSL_do_handshake", ENOMEM},
    {"SSL_read_ex", ENOMEM},
    {"SSL_write_ex", ENOMEM},
    {"X509_new", ENOMEM},
    {"X509_set_pubkey", ENOMEM},
    {"X509_sign", ENOMEM},
    {"X509_STORE_new", ENOMEM},
    {"X509_STORE_add_cert", ENOMEM},
    {"X509_STORE_add_crl", ENOMEM},
    {"X509_STORE_CTX_new", ENOMEM},
    {"X509_STORE_CTX_init", ENOMEM},
    {"SSL_set1_host", ENOMEM},
    {"X509_VERIFY_PARAM_set1", ENOMEM},
    {"X509_VERIFY_PARAM_set1_ip_asc", ENOMEM},
});

#ifdef ACCEL_FAULTS_ZMQ
constexpr std::array zmq = std::to_array<failure>({
    {"zmq_ctx_new", EMFILE},
    {"zmq_ctx_set", EINVAL},
    {"zmq_socket", EMFILE},
    {"zmq_socket", ENOMEM},
    {"zmq_setsockopt", EINTR},
    {"zmq_setsockopt", EINVAL},
    {"zmq_getsockopt", EINTR},
    {"zmq_bind", EADDRINUSE},
    {"zmq_bind", EADDRNOTAVAIL},
    {"zmq_bind", EMTHREAD},
    {"zmq_connect", EMTHREAD},
    {"zmq_connect", EINVAL},
    {"zmq_socket_monitor", EADDRINUSE},
    {"zmq_curve_keypair", ENOTSUP},
    {"zmq_msg_init_data", ENOMEM},
    {"zmq_msg_send", EAGAIN},
    {"zmq_msg_send", EINTR},
    {"zmq_msg_recv", EINTR},
    {"zmq_send", EAGAIN},
    {"zmq_send", EINTR},
    {"zmq_poll", EINTR},
});
#endif

#ifdef ACCEL_FAULTS_VERBS
constexpr std::array verbs = std::to_array<failure>({
    {"ibv_get_device_list", ENOMEM},
    {"ibv_open_device", EMFILE},
    {"ibv_query_device", ENOMEM},
    {"ibv_query_port", ENOMEM},
    {"ibv_alloc_pd", ENOMEM},
    {"ibv_create_comp_channel", EMFILE},
    {"ibv_create_cq", ENOMEM},
    {"ibv_create_srq", ENOMEM},
    {"ibv_create_qp", ENOMEM},
    {"ibv_modify_qp", ENOMEM},
    {"ibv_modify_qp", ETIMEDOUT},
    {"ibv_reg_mr", ENOMEM},
    {"ibv_reg_mr_iova2", ENOMEM},
    {"ibv_create_ah", ENOMEM},
    {"ibv_get_cq_event", EINTR},
    {"ibv_get_async_event", EINTR},
});
#endif

/// What was made since a failure was chosen: calls that concern anything else go on.
class made_lately {
  public:
    void add(const void* object) noexcept {
        if (object != nullptr) all_[next_++ % all_.size()] = object;
    }
    void clear() noexcept {
        for (auto& each : all_) each = nullptr;
    }
    [[nodiscard]] bool has(const void* object) const noexcept {
        for (const auto& each : all_)
            if (each == object) return true;
        return false;
    }

  private:
    std::array<std::atomic<const void*>, 64> all_{};
    std::atomic<std::size_t> next_{0};
};
made_lately lately;

template <class Function>
Function* next(const char* name) noexcept {
    return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

/// `object`: null is none.
bool fails(std::string_view call, const void* caller, const void* object) noexcept {
    return (object == nullptr || lately.has(object)) && is_failing(call, caller);
}

template <class Result>
Result noted(Result made) noexcept {
    if constexpr (std::is_pointer_v<Result>) lately.add(made);
    return made;
}

/// As OpenSSL says that it has no memory.
template <class Result>
Result no_memory(Result refused) noexcept {
    ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
    return refused;
}

}  // namespace

std::span<const failure> library_failures(std::string_view scheme) noexcept {
    if (scheme == "tcp") return openssl;
#ifdef ACCEL_FAULTS_ZMQ
    if (scheme == "zmq") return zmq;
#endif
#ifdef ACCEL_FAULTS_VERBS
    if (scheme == "rdma" || scheme == "gdr" || scheme == "gpu") return verbs;
#endif
    return {};
}

void forget_objects() noexcept {
    lately.clear();
}

}  // namespace accel::faults

// NOLINTBEGIN(cert-dcl50-cpp): as the libraries have them
#define ACCEL_FAILING(result, name, parameters, arguments, object, refused)    \
    extern "C" __attribute__((visibility("default"))) result name parameters { \
        using namespace accel::faults;                                         \
        static const auto real = next<result parameters>(#name);               \
        if (fails(#name, __builtin_return_address(0), object)) return refused; \
        return noted(real arguments);                                          \
    }

ACCEL_FAILING(BIO*, BIO_new, (const BIO_METHOD* kind), (kind), nullptr, no_memory<BIO*>(nullptr))
ACCEL_FAILING(BIO*, BIO_new_mem_buf, (const void* from, int size), (from, size), nullptr, no_memory<BIO*>(nullptr))
ACCEL_FAILING(int, PEM_read_bio, (BIO * from, char** name, char** header, unsigned char** data, long* size),
              (from, name, header, data, size), nullptr, no_memory(0))
ACCEL_FAILING(EVP_PKEY*, PEM_read_bio_PrivateKey, (BIO * from, EVP_PKEY** out, pem_password_cb* ask, void* with),
              (from, out, ask, with), nullptr, no_memory<EVP_PKEY*>(nullptr))
ACCEL_FAILING(int, EVP_PKEY_get_raw_public_key, (const EVP_PKEY* key, unsigned char* out, size_t* size),
              (key, out, size), nullptr, no_memory(0))
ACCEL_FAILING(int, RAND_priv_bytes, (unsigned char* out, int size), (out, size), nullptr, no_memory(0))
ACCEL_FAILING(SSL_CTX*, SSL_CTX_new, (const SSL_METHOD* kind), (kind), nullptr, no_memory<SSL_CTX*>(nullptr))
ACCEL_FAILING(int, SSL_CTX_set_ciphersuites, (SSL_CTX * of, const char* names), (of, names), nullptr, no_memory(0))
ACCEL_FAILING(int, SSL_CTX_set_session_id_context, (SSL_CTX * of, const unsigned char* name, unsigned size),
              (of, name, size), nullptr, no_memory(0))
ACCEL_FAILING(long, SSL_CTX_ctrl, (SSL_CTX * of, int what, long number, void* value), (of, what, number, value),
              nullptr, no_memory(0L))
ACCEL_FAILING(int, SSL_CTX_use_certificate, (SSL_CTX * of, X509* own), (of, own), nullptr, no_memory(0))
ACCEL_FAILING(int, SSL_CTX_use_PrivateKey, (SSL_CTX * of, EVP_PKEY* own), (of, own), nullptr, no_memory(0))
ACCEL_FAILING(SSL*, SSL_new, (SSL_CTX * of), (of), nullptr, no_memory<SSL*>(nullptr))
ACCEL_FAILING(int, SSL_set_alpn_protos, (SSL * of, const unsigned char* all, unsigned size), (of, all, size), nullptr,
              no_memory(1))
ACCEL_FAILING(SSL_SESSION*, SSL_SESSION_new, (), (), nullptr, no_memory<SSL_SESSION*>(nullptr))
ACCEL_FAILING(int, SSL_SESSION_set1_master_key, (SSL_SESSION * of, const unsigned char* key, size_t size),
              (of, key, size), nullptr, no_memory(0))
ACCEL_FAILING(int, SSL_do_handshake, (SSL * of), (of), of, no_memory(-1))
ACCEL_FAILING(int, SSL_read_ex, (SSL * of, void* to, size_t size, size_t* count), (of, to, size, count), of,
              no_memory(0))
ACCEL_FAILING(int, SSL_write_ex, (SSL * of, const void* from, size_t size, size_t* count), (of, from, size, count), of,
              no_memory(0))
ACCEL_FAILING(X509*, X509_new, (), (), nullptr, no_memory<X509*>(nullptr))
ACCEL_FAILING(int, X509_set_pubkey, (X509 * of, EVP_PKEY* key), (of, key), nullptr, no_memory(0))
ACCEL_FAILING(int, X509_sign, (X509 * of, EVP_PKEY* by, const EVP_MD* how), (of, by, how), nullptr, no_memory(0))
ACCEL_FAILING(X509_STORE*, X509_STORE_new, (), (), nullptr, no_memory<X509_STORE*>(nullptr))
ACCEL_FAILING(int, X509_STORE_add_cert, (X509_STORE * to, X509* one), (to, one), nullptr, no_memory(0))
ACCEL_FAILING(int, X509_STORE_add_crl, (X509_STORE * to, X509_CRL* one), (to, one), nullptr, no_memory(0))
ACCEL_FAILING(X509_STORE_CTX*, X509_STORE_CTX_new, (), (), nullptr, no_memory<X509_STORE_CTX*>(nullptr))
ACCEL_FAILING(int, X509_STORE_CTX_init, (X509_STORE_CTX * of, X509_STORE* by, X509* one, STACK_OF(X509) * chain),
              (of, by, one, chain), nullptr, no_memory(0))
ACCEL_FAILING(int, SSL_set1_host, (SSL * of, const char* host), (of, host), nullptr, no_memory(0))
ACCEL_FAILING(int, X509_VERIFY_PARAM_set1, (X509_VERIFY_PARAM * to, const X509_VERIFY_PARAM* from), (to, from), nullptr,
              no_memory(0))
ACCEL_FAILING(int, X509_VERIFY_PARAM_set1_ip_asc, (X509_VERIFY_PARAM * of, const char* address), (of, address), nullptr,
              no_memory(0))

#ifdef ACCEL_FAULTS_ZMQ
ACCEL_FAILING(void*, zmq_ctx_new, (), (), nullptr, nullptr)
ACCEL_FAILING(int, zmq_ctx_set, (void* of, int what, int value), (of, what, value), nullptr, -1)
ACCEL_FAILING(void*, zmq_socket, (void* of, int kind), (of, kind), nullptr, nullptr)
ACCEL_FAILING(int, zmq_setsockopt, (void* of, int what, const void* value, size_t size), (of, what, value, size), of,
              -1)
ACCEL_FAILING(int, zmq_getsockopt, (void* of, int what, void* value, size_t* size), (of, what, value, size), of, -1)
ACCEL_FAILING(int, zmq_bind, (void* of, const char* where), (of, where), of, -1)
ACCEL_FAILING(int, zmq_connect, (void* of, const char* where), (of, where), of, -1)
ACCEL_FAILING(int, zmq_socket_monitor, (void* of, const char* where, int events), (of, where, events), of, -1)
ACCEL_FAILING(int, zmq_curve_keypair, (char* open, char* secret), (open, secret), nullptr, -1)
ACCEL_FAILING(int, zmq_msg_init_data, (zmq_msg_t * made, void* data, size_t size, zmq_free_fn* after, void* with),
              (made, data, size, after, with), nullptr, -1)
ACCEL_FAILING(int, zmq_msg_send, (zmq_msg_t * what, void* by, int how), (what, by, how), by, -1)
ACCEL_FAILING(int, zmq_msg_recv, (zmq_msg_t * what, void* by, int how), (what, by, how), by, -1)
ACCEL_FAILING(int, zmq_send, (void* by, const void* from, size_t size, int how), (by, from, size, how), by, -1)
ACCEL_FAILING(int, zmq_poll, (zmq_pollitem_t * all, int count, long timeout), (all, count, timeout), nullptr, -1)
#endif

#ifdef ACCEL_FAULTS_VERBS
ACCEL_FAILING(ibv_device**, ibv_get_device_list, (int* count), (count), nullptr, nullptr)
ACCEL_FAILING(ibv_context*, ibv_open_device, (ibv_device * which), (which), nullptr, nullptr)
ACCEL_FAILING(int, ibv_query_device, (ibv_context * of, ibv_device_attr* out), (of, out), nullptr, errno)
ACCEL_FAILING(int, ibv_query_port, (ibv_context * of, uint8_t port, _compat_ibv_port_attr* out), (of, port, out),
              nullptr, errno)
ACCEL_FAILING(ibv_pd*, ibv_alloc_pd, (ibv_context * of), (of), nullptr, nullptr)
ACCEL_FAILING(ibv_comp_channel*, ibv_create_comp_channel, (ibv_context * of), (of), nullptr, nullptr)
ACCEL_FAILING(ibv_cq*, ibv_create_cq, (ibv_context * of, int size, void* with, ibv_comp_channel* by, int vector),
              (of, size, with, by, vector), nullptr, nullptr)
ACCEL_FAILING(ibv_srq*, ibv_create_srq, (ibv_pd * of, ibv_srq_init_attr* wanted), (of, wanted), nullptr, nullptr)
ACCEL_FAILING(ibv_qp*, ibv_create_qp, (ibv_pd * of, ibv_qp_init_attr* wanted), (of, wanted), nullptr, nullptr)
ACCEL_FAILING(int, ibv_modify_qp, (ibv_qp * of, ibv_qp_attr* wanted, int mask), (of, wanted, mask), of, errno)
ACCEL_FAILING(ibv_mr*, ibv_reg_mr, (ibv_pd * of, void* at, size_t size, int access), (of, at, size, access), nullptr,
              nullptr)
ACCEL_FAILING(ibv_mr*, ibv_reg_mr_iova2, (ibv_pd * of, void* at, size_t size, uint64_t as, unsigned access),
              (of, at, size, as, access), nullptr, nullptr)
ACCEL_FAILING(ibv_ah*, ibv_create_ah, (ibv_pd * of, ibv_ah_attr* to), (of, to), nullptr, nullptr)
ACCEL_FAILING(int, ibv_get_cq_event, (ibv_comp_channel * by, ibv_cq** out, void** with), (by, out, with), by, -1)
ACCEL_FAILING(int, ibv_get_async_event, (ibv_context * of, ibv_async_event* out), (of, out), nullptr, -1)
#endif
// NOLINTEND(cert-dcl50-cpp)
