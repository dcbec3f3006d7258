/** All views: their paths, their place in the navigation, and the script that contains each. */
import type { ComponentType } from 'preact'
import { features, hasSecrets } from './session.ts'

export interface ViewProps {
  /** Decoded parameters of the path. */
  readonly params: Readonly<Record<string, string>>
}

export interface Route {
  readonly pattern: string
  readonly load: () => Promise<{ readonly default: ComponentType<ViewProps> }>
}

export interface Section {
  readonly title: string
  readonly path: string
  /** Second key of `g`. */
  readonly key: string
  readonly group: 'Hosts' | 'Secrets' | 'System'
  readonly isAvailable: () => boolean
}

const always = () => true
const hasHosts = () => features.value !== undefined

/** The navigation, in order. */
export const SECTIONS: readonly Section[] = [
  { title: 'Logs', path: '/logs', key: 'l', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Hosts', path: '/hosts', key: 'h', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Files', path: '/files', key: 'f', group: 'Hosts', isAvailable: hasHosts },
  { title: 'Secrets', path: '/secrets', key: 's', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Policies', path: '/policies', key: 'p', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Access', path: '/access', key: 'a', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'TOTP', path: '/totp', key: 't', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Cloud', path: '/cloud', key: 'c', group: 'Secrets', isAvailable: () => hasSecrets.value },
  { title: 'Replication', path: '/dr', key: 'd', group: 'System', isAvailable: () => hasSecrets.value },
  { title: 'Seal', path: '/seal', key: 'u', group: 'System', isAvailable: () => hasSecrets.value },
  { title: 'Status', path: '/status', key: 'o', group: 'System', isAvailable: always },
]

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
  { pattern: '/secrets/:mount/*', load: () => import('../views/secrets/secret-view.tsx') },
  { pattern: '/secrets/:mount', load: () => import('../views/secrets/secret-view.tsx') },
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
