/** The status of a node in the roster. */

/** Statuses that stock clients know. `disconnected`: this server has no connection to NATS, so the state is unknown. */
export const NODE_STATUSES = ['ready', 'down', 'disconnected'] as const
export type NodeStatus = (typeof NODE_STATUSES)[number]

/** Status text of a node whose process stopped with an announcement, and not by a crash or a lost connection. */
export const NODE_LEFT = 'Node left'

export function hasLeft(node: { readonly status: NodeStatus; readonly statusText: string }): boolean {
  return node.status === 'down' && node.statusText === NODE_LEFT
}
