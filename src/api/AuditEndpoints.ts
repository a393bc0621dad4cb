import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, HttpApiSchema, OpenApi } from "effect/http-api"
import { AuditEntry, AuditPage, AuditQuery } from "./Audit.ts"
import { inOrder } from "./InOrder.ts"
import { operationSteps } from "./OperationMiddleware.ts"
import { linkHeader } from "./Paging.ts"

export class AuditGroup extends HttpApiGroup.make("audit", { topLevel: true }).add(
  HttpApiEndpoint.get("listAudit", "/audit", {
    query: AuditQuery.fields,
    success: AuditPage.pipe(HttpApiSchema.encodeToWithHeaders({
      body: Schema.Array(AuditEntry),
      headers: linkHeader("/admin/audit", AuditQuery)
    }, {
      decode: ({ body, headers: { link } }) => ({ entries: body, ...link && { next: link } }),
      encode: ({ entries, next }) => ({ body: entries, headers: next ? { link: next } : {} })
    }))
  }).pipe(inOrder(...operationSteps)).annotateMerge(OpenApi.annotations({
    summary: "List the entries of the audit log",
    description: "Returns a page of entries, newest first: all, or those of a key, an operator, an action or a period."
  }))
).annotate(OpenApi.Description, "The audit log.") {}
