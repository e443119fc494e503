/* The routes as rows; routing and /openapi.json look at them. */
#ifndef ISOMER_SERVER_ROUTES_H
#define ISOMER_SERVER_ROUTES_H

#include "server/job.h"

typedef enum iso_access { ISO_ACCESS_OPEN, ISO_ACCESS_KEYED } iso_access;

#define ISO_ROUTE_BODY_NONE ISO_BODY_COUNT
#define ISO_ROUTE_BODY_CHAT ISO_BODY_CHAT
#define ISO_ROUTE_BODY_COMPLETION ISO_BODY_COMPLETION
#define ISO_ROUTE_BODY_EMBEDDING ISO_BODY_EMBEDDING
#define ISO_ROUTE_BODY_TOKENIZE ISO_BODY_TOKENIZE
#define ISO_ROUTE_BODY_DETOKENIZE ISO_BODY_DETOKENIZE
#define ISO_ROUTE_BODY_VLLM ISO_BODY_VLLM
#define ISO_ROUTE_BODY_TGI ISO_BODY_TGI

typedef struct iso_route_row {
  const char *path, *method_name, *summary;
  iso_http_method method;
  iso_access access;
  iso_body body;
  void (*handle)(iso_server *server, iso_exchange *exchange);
} iso_route_row;

extern const iso_route_row iso_routes[];
extern const int iso_route_count;

#define ISO_ROUTE(METHOD, path, handler, access, body, summary)                                    \
  void iso_handle_##handler(iso_server *server, iso_exchange *exchange);
#include "server/routes.def"
#undef ISO_ROUTE

#endif
