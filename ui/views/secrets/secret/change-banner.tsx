import { useEffect, useState } from 'preact/hooks'
import { Button } from '../../../components/button.tsx'
import { Time } from '../../../components/format.tsx'
import type { SecretChange } from './changes.ts'

export interface NewsItem {
  readonly change: SecretChange | 'reset'
  readonly atMs: number
}

const PAST: Readonly<Record<SecretChange['change'], string>> = {
  write: 'was written',
  delete: 'was deleted',
  undelete: 'was undeleted',
  destroy: 'was destroyed',
  metadata: 'has new settings',
  remove: 'was deleted with all versions',
}

export function newsText(change: SecretChange | 'reset'): string {
  if (change === 'reset') return 'Changes of this secret may have been missed'
  const { change: kind, version } = change
  if (kind === 'write') return `Version ${version} ${PAST.write}`
  if (kind === 'metadata' || kind === 'remove') return `The secret ${PAST[kind]}`
  return `A version ${PAST[kind]}`
}

interface ChangeBannerProps {
  readonly news: NewsItem
  readonly reload: () => void
  /** A reload would discard the text of the editor, which compares both when it is saved. */
  readonly isEditing: boolean
}

/** Tells that another client changed the secret. */
export function ChangeBanner({ isEditing, news: { atMs, change }, reload }: ChangeBannerProps) {
  const [nowMs, setNowMs] = useState(atMs)
  useEffect(() => {
    const timer = setInterval(() => setNowMs(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return (
    <p class="notice" role="status">
      {newsText(change)} <Time at={atMs} fromMs={Math.max(nowMs, atMs)} />.{' '}
      {isEditing ? (
        'When you save, both changes are compared.'
      ) : (
        <Button onClick={reload} kind="primary">
          Reload
        </Button>
      )}
    </p>
  )
}
