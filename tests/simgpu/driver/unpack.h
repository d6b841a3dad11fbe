/* unpack.h: the two compressions that fat binaries use. Both decoders are bounded by the sizes they
 * are given, allocate nothing and keep no state. */
#ifndef SG_UNPACK_H
#define SG_UNPACK_H

#include <stddef.h>

/* One LZ4 block (no frame). Returns the bytes written, or -1 if the input is malformed or does not
 * fit. */
long sg_unpack_lz4(unsigned char *dst, size_t dst_bytes, const unsigned char *src,
                   size_t src_bytes);

/* One Zstandard frame (RFC 8878, no dictionary; the optional checksum is not verified). */
long sg_unpack_zstd(unsigned char *dst, size_t dst_bytes, const unsigned char *src,
                    size_t src_bytes);

#endif
