/** A file of its own: readiness of an agent without replication loads no other file of this module. */

/** `address`: of the replaced primary that has not acknowledged the notice of the promotion. */
export function noticeWarning(address: string): string {
  return `the old DR primary at ${address} has not acknowledged that it was replaced and may serve stale data to its callers: keep callers from it, and unseal it when it runs again`
}
