/**
 * Search in the lines of a tail: `/` moves the focus here. Enter selects the match above, because a tail shows its end, and Shift Enter the
 * one below. Both then move the focus to the lines, where `n` and `N` repeat the search. Escape does the same without a selection.
 */
import { useEffect, useId } from 'preact/hooks'
import { Button } from '../../../components/button.tsx'
import { ERROR_EXPRESSION } from '../model/line-text.ts'
import { focusLines } from './line-list.tsx'
import type { TailController } from './tail-controller.ts'

export interface FindQuery {
  readonly text: string
  readonly isExpression: boolean
}

interface FindBarProps {
  readonly tail: TailController
  readonly query: FindQuery
  readonly onQuery: (query: FindQuery) => void
  /** Finds errors, and goes to the last one. */
  readonly onErrors: () => void
}

export function FindBar({ onErrors, onQuery, query, tail }: FindBarProps) {
  const id = useId()
  useEffect(() => tail.setSearch(query.text, query.isExpression), [tail, query.text, query.isExpression])
  const onKeyDown = (event: KeyboardEvent) => {
    // A key of the view.
    if (event.ctrlKey || event.metaKey) return
    if (event.key === 'Enter') tail.find(event.shiftKey ? 1 : -1)
    if (event.key === 'Enter' || event.key === 'Escape') focusLines()
    else if (event.key === 'ArrowDown') tail.find(1)
    else if (event.key === 'ArrowUp') tail.find(-1)
    else return
    event.preventDefault()
  }
  const isErrors = query.isExpression && query.text === ERROR_EXPRESSION
  return (
    <div class="log-find" role="search">
      <label for={id} class="visually-hidden">
        Find in the lines
      </label>
      <input
        id={id}
        type="text"
        data-search=""
        placeholder="Find  /"
        autoComplete="off"
        spellcheck={false}
        aria-invalid={tail.searchError !== undefined}
        value={query.text}
        onInput={(event) => onQuery({ ...query, text: event.currentTarget.value })}
        onKeyDown={onKeyDown}
      />
      <FindCount tail={tail} />
      <Button label="Previous match" title="N" onClick={() => tail.find(-1)}>
        ↑
      </Button>
      <Button label="Next match" title="n" onClick={() => tail.find(1)}>
        ↓
      </Button>
      <Button
        label="Regular expression"
        title="Search with a regular expression"
        pressed={query.isExpression}
        onClick={() => onQuery({ ...query, isExpression: !query.isExpression })}
      >
        .*
      </Button>
      <Button
        title="e"
        pressed={isErrors}
        onClick={isErrors ? () => onQuery({ text: '', isExpression: false }) : onErrors}
      >
        Errors
      </Button>
    </div>
  )
}

export const ERRORS: FindQuery = { text: ERROR_EXPRESSION, isExpression: true }

function FindCount({ tail }: { readonly tail: TailController }) {
  void tail.tick.value
  const { search, searchError } = tail
  const text =
    searchError !== undefined ? 'Invalid' : search ? countText(search.count, search.placeOf(tail.selectedId)) : ''
  return (
    <span class="log-count" role="status" title={searchError}>
      {text}
    </span>
  )
}

function countText(count: number, place: number): string {
  return place > 0 ? `${place} of ${count}` : `${count} ${count === 1 ? 'match' : 'matches'}`
}
