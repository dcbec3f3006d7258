/** All views: their paths, and the script that contains each. */
import type { ComponentType } from 'preact'
import type { ViewProps } from './view-props.ts'

export interface Route {
  readonly pattern: string
  readonly load: () => Promise<{ readonly default: ComponentType<ViewProps> }>
}

/** The first route that matches is used. */
export const ROUTES: readonly Route[] = [
  { pattern: '/logs/wall', load: () => import('../views/logs/wall-view.tsx') },
  { pattern: '/logs/job/:namespace/:job', load: () => import('../views/logs/log-view.tsx') },
  { pattern: '/logs/:allocation/:task', load: () => import('../views/logs/log-view.tsx') },
  { pattern: '/logs/:allocation', load: () => import('../views/logs/log-view.tsx') },
  { pattern: '/logs', load: () => import('../views/logs/log-list-view.tsx') },
  { pattern: '/hosts/:node', load: () => import('../views/hosts/host-view.tsx') },
  { pattern: '/hosts', load: () => import('../views/hosts/host-list-view.tsx') },
  { pattern: '/files/:allocation/*', load: () => import('../views/files/file-view.tsx') },
  { pattern: '/files/:allocation', load: () => import('../views/files/file-view.tsx') },
  { pattern: '/files', load: () => import('../views/files/file-list-view.tsx') },
  { pattern: '/secrets/:mount/*', load: () => import('../views/secrets/secret/secret-view.tsx') },
  { pattern: '/secrets/:mount', load: () => import('../views/secrets/secret/secret-view.tsx') },
  { pattern: '/secrets', load: () => import('../views/secrets/mounts-view.tsx') },
  { pattern: '/policies/:name', load: () => import('../views/policies/policies-view.tsx') },
  { pattern: '/policies', load: () => import('../views/policies/policies-view.tsx') },
  { pattern: '/access/*', load: () => import('../views/access/access-view.tsx') },
  { pattern: '/access', load: () => import('../views/access/access-view.tsx') },
  { pattern: '/totp/*', load: () => import('../views/totp/totp-view.tsx') },
  { pattern: '/totp', load: () => import('../views/totp/totp-view.tsx') },
  { pattern: '/cloud/*', load: () => import('../views/cloud/cloud-view.tsx') },
  { pattern: '/cloud', load: () => import('../views/cloud/cloud-view.tsx') },
  { pattern: '/dr', load: () => import('../views/dr/dr-view.tsx') },
  { pattern: '/seal', load: () => import('../views/seal/seal-view.tsx') },
  { pattern: '/status', load: () => import('../views/status/status-view.tsx') },
]
