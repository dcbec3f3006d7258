/** Whether a tail is live, and the button that pauses it. */
import { Button } from '../../../components/button.tsx'
import type { TailController } from './tail-controller.ts'

interface StateText {
  readonly text: string
  readonly kind: 'good' | 'bad' | 'neutral'
}

function stateOf(tail: TailController): StateText {
  const { isFull, state } = tail.session
  switch (state.kind) {
    case 'connecting':
      return { text: 'Connecting', kind: 'neutral' }
    case 'waiting':
      return { text: 'Waiting for the log', kind: 'neutral' }
    case 'disconnected':
      return { text: 'Disconnected, retrying', kind: 'bad' }
    case 'ended':
      return { text: 'Ended', kind: 'neutral' }
    case 'failed':
      return { text: 'Failed', kind: 'bad' }
    default:
      if (isFull) return { text: 'Reading paused', kind: 'neutral' }
      return tail.isFollowing ? { text: 'Live', kind: 'good' } : { text: 'Paused', kind: 'neutral' }
  }
}

export function TailState({ isCompact, tail }: { readonly tail: TailController; readonly isCompact?: boolean }) {
  void tail.tick.value
  const { kind, text } = stateOf(tail)
  const { isFollowing, newLines, session } = tail
  const { lineCount, removedLines } = session.buffer
  const count = `${lineCount.toLocaleString('en')} ${lineCount === 1 ? 'line' : 'lines'}`
  const lines = removedLines > 0 ? `last ${count}` : count
  const isOver = session.state.kind === 'ended' || session.state.kind === 'failed'
  return (
    <div class="log-state">
      <span class={`badge badge-${kind}`}>{text}</span>
      {!isCompact && <span class="muted log-lines">{lines}</span>}
      {isOver && !isCompact && <Button onClick={() => session.restart()}>Follow again</Button>}
      {isOver ? null : isFollowing ? (
        <Button title="p" onClick={() => tail.follow(false)}>
          Pause
        </Button>
      ) : (
        <Button title="f" kind="primary" onClick={() => tail.follow()}>
          {newLines > 0 ? `Follow · ${newLines.toLocaleString('en')} new` : 'Follow'}
        </Button>
      )}
    </div>
  )
}
